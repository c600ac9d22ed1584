// client.mjs CONTEXT NAMESPACE POD NAME works with a pod, and creates, changes and deletes the ConfigMap NAME. It prints
// one line for each step that has succeeded.
import { setTimeout as timeout } from 'node:timers/promises';
import { Writable } from 'node:stream';
import * as k8s from '@kubernetes/client-node';

const [context, namespace, pod, name] = process.argv.slice(2);
const config = new k8s.KubeConfig();
config.loadFromDefault();
config.setCurrentContext(context);
const core = config.makeApiClient(k8s.CoreV1Api);

// collect returns a stream, and a promise for a text in it.
function collect(wanted) {
  let text = '', found;
  const promise = new Promise((resolve) => { found = resolve; });
  const stream = new Writable({ write(chunk, _, next) { if ((text += chunk).includes(wanted)) found(); next(); } });
  return { stream, promise };
}

// changes has an entry for each event of the informer.
const changes = [];
let notify = () => {};
const informer = k8s.makeInformer(config, `/api/v1/namespaces/${namespace}/configmaps`,
  () => core.listNamespacedConfigMap({ namespace }));
for (const event of ['add', 'update', 'delete']) {
  informer.on(event, (object) => {
    changes.push(`${event} ${object.metadata.name} ${object.data?.text}`);
    notify();
  });
}
informer.on('error', (error) => console.error('informer:', error));

async function informed(change) {
  while (!changes.includes(change)) await new Promise((resolve) => { notify = resolve; });
  console.log('informer:', change);
}

async function main() {
  const pods = await core.listNamespacedPod({ namespace });
  console.log('list:', pods.items.map((item) => item.metadata.name).sort().join(' '));
  const read = await core.readNamespacedPod({ namespace, name: pod });
  console.log('read:', read.metadata.name, read.status.phase);
  await informer.start();

  const log = collect('3');
  const follow = await new k8s.Log(config).log(namespace, pod, 'talker', log.stream, { follow: true });
  await log.promise;
  follow.abort();
  console.log('log: followed');

  const output = collect('hello');
  const status = await new Promise((resolve, reject) => {
    new k8s.Exec(config).exec(namespace, pod, 'talker', ['echo', 'hello'], output.stream, null, null, false, resolve)
      .catch(reject);
  });
  await output.promise;
  console.log('exec:', status.status);

  await core.createNamespacedConfigMap({ namespace, body: { metadata: { name }, data: { text: 'first' } } });
  await informed(`add ${name} first`);
  const stored = await core.readNamespacedConfigMap({ namespace, name });
  stored.data.text = 'second';
  await core.replaceNamespacedConfigMap({ namespace, name, body: stored });
  await informed(`update ${name} second`);
  const patched = await core.patchNamespacedConfigMap({ namespace, name, body: { data: { text: 'third' } } },
    k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch));
  console.log('patch:', patched.metadata.name, patched.data.text);
  await informed(`update ${name} third`);
  await core.deleteNamespacedConfigMap({ namespace, name });
  await informed(`delete ${name} third`);
  await informer.stop();
}

const limit = new AbortController();
try {
  await Promise.race([main(), timeout(240_000, undefined, { signal: limit.signal }).then(() => {
    throw new Error(`not done within four minutes; events: ${changes.join(', ')}`);
  })]);
} catch (error) {
  console.error(error);
  process.exitCode = 1;
} finally {
  limit.abort();
  process.exit(); // open connections would keep the process
}
