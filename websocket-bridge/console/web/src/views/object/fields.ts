// fieldValue returns a value for a field selector, whose own characters are escaped.
export function fieldValue(value: string): string {
  return value.replace(/[\\,=]/g, '\\$&');
}
