// JSON merge patches (RFC 7396) of objects. A patch has only what the user changed, so that nothing else is written.

type JSONObject = Record<string, unknown>;

function isObject(value: unknown): value is JSONObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

// isEqual reports whether two JSON values are the same.
export function isEqual(a: unknown, b: unknown): boolean {
  if (Array.isArray(a) && Array.isArray(b)) {
    return a.length === b.length && a.every((value, i) => isEqual(value, b[i]));
  }
  if (isObject(a) && isObject(b)) {
    const keys = Object.keys(a);
    return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && isEqual(a[key], b[key]));
  }
  return Object.is(a, b);
}

function set(object: JSONObject, key: string, value: unknown): void {
  Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true });
}

// mergePatch returns the patch that changes from into to, or undefined if they are the same.
export function mergePatch(from: JSONObject, to: JSONObject): JSONObject | undefined {
  const patch: JSONObject = {};
  for (const key of Object.keys(from)) {
    if (!Object.hasOwn(to, key)) {
      set(patch, key, null);
    }
  }
  for (const [key, value] of Object.entries(to)) {
    const old = Object.hasOwn(from, key) ? from[key] : undefined;
    if (isObject(old) && isObject(value)) {
      const inner = mergePatch(old, value);
      if (inner) {
        set(patch, key, inner);
      }
    } else if (!isEqual(old, value)) {
      set(patch, key, value);
    }
  }
  return Object.keys(patch).length > 0 ? patch : undefined;
}

// applyPatch returns target with a merge patch applied.
export function applyPatch(target: unknown, patch: unknown): unknown {
  if (!isObject(patch)) {
    return patch;
  }
  const result: JSONObject = {};
  if (isObject(target)) {
    Object.entries(target).forEach(([key, value]) => set(result, key, value));
  }
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) {
      delete result[key];
    } else {
      set(result, key, applyPatch(Object.hasOwn(result, key) ? result[key] : undefined, value));
    }
  }
  return result;
}

// overlap returns the fields that two patches set to different values.
export function overlap(a: JSONObject, b: JSONObject, path = ''): string[] {
  return Object.keys(a).filter((key) => Object.hasOwn(b, key)).flatMap((key) => {
    const at = path === '' ? key : `${path}.${key}`;
    const [x, y] = [a[key], b[key]];
    return isObject(x) && isObject(y) ? overlap(x, y, at) : isEqual(x, y) ? [] : [at];
  });
}

// hasInexactNumber reports whether a value has an integer that JavaScript cannot represent.
export function hasInexactNumber(value: unknown): boolean {
  if (typeof value === 'number') {
    return Number.isInteger(value) && !Number.isSafeInteger(value);
  }
  return typeof value === 'object' && value !== null && Object.values(value).some(hasInexactNumber);
}
