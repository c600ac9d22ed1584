package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	clusters "github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/test/cluster"
	"github.com/clusterpass/clusterpass/test/fleetcheck/generate"
)

type fault struct {
	name       string
	isDowntime bool // the cluster does not answer between begin and end
	// answersReads reports whether the API server still answers some reads from its cache.
	answersReads bool
	begin, end   func(ctx context.Context, r *runner, m *member) error
}

// changeMembership waits until every part of the gateway uses the changed clusters. No response shows a part's cached
// clusters, so only the age of its cache is certain.
func (r *runner) changeMembership(ctx context.Context, change func() error) error {
	r.epoch.isChanging.Store(true)
	defer r.epoch.isChanging.Store(false)
	if err := change(); err != nil {
		return err
	}
	select {
	case <-time.After(2 * clusters.Local.Object):
	case <-ctx.Done():
	}
	return r.settle(ctx)
}

func none(context.Context, *runner, *member) error { return nil }

// A run of several rounds uses each fault before it repeats one.
var faults = []fault{
	{"kill the API server", true, false,
		func(ctx context.Context, _ *runner, m *member) error { return m.cluster.Kill(ctx, cluster.APIServer) },
		func(ctx context.Context, _ *runner, m *member) error {
			return m.cluster.Restart(ctx, cluster.APIServer)
		}},
	{"freeze the API server", true, false,
		func(ctx context.Context, _ *runner, m *member) error { return m.cluster.Pause(ctx, cluster.APIServer) },
		func(ctx context.Context, _ *runner, m *member) error { return m.cluster.Resume(ctx, cluster.APIServer) }},
	{"compact etcd, and restart the API server", false, false,
		func(ctx context.Context, r *runner, m *member) error {
			return errors.Join(compact(ctx, r.set, m), m.cluster.Restart(ctx, cluster.APIServer))
		}, none},
	{"remove the cluster from the gateway", false, false,
		func(ctx context.Context, r *runner, m *member) error {
			m.registered = false
			return r.changeMembership(ctx, func() error { return r.registrar.Remove(ctx, m.name) })
		},
		func(ctx context.Context, r *runner, m *member) error {
			m.registered = true
			return r.changeMembership(ctx, func() error { return r.register(ctx, m) })
		}},
	{"compact etcd", false, false,
		func(ctx context.Context, r *runner, m *member) error { return compact(ctx, r.set, m) }, none},
	{"restart etcd and the API server", false, false,
		func(ctx context.Context, _ *runner, m *member) error {
			return m.cluster.Restart(ctx, cluster.Etcd, cluster.APIServer)
		}, none},
	{"freeze etcd", true, true,
		func(ctx context.Context, _ *runner, m *member) error { return m.cluster.Pause(ctx, cluster.Etcd) },
		func(ctx context.Context, _ *runner, m *member) error { return m.cluster.Resume(ctx, cluster.Etcd) }},
}

const writesPerFault = 4

// disturb writes to the other clusters during a fault, and compares the documented behaviour.
func (r *runner) disturb(ctx context.Context, round int) error {
	first := generate.New(r.seed, 0).IntN(len(faults)) // decides for the whole run
	f, m := faults[(first+round)%len(faults)], generate.Pick(r.src, r.members)
	r.note("%s: %s", f.name, m.name)
	r.counts.faults++
	r.epoch.next()
	err := f.begin(ctx, r, m)
	m.down = f.isDowntime
	if err == nil {
		err = r.whileDisturbed(ctx, f, m)
	}
	err = errors.Join(err, f.end(ctx, r, m))
	m.down = false
	r.epoch.next()
	if err != nil {
		return fmt.Errorf("%s of %s: %w", f.name, m.name, err)
	}
	return nil
}

func (r *runner) whileDisturbed(ctx context.Context, f fault, m *member) error {
	for range writesPerFault {
		r.begin()
		if !m.down { // writes may need a kind's discovery, which waits for all clusters
			if err := r.write(ctx); err != nil {
				return err
			}
		} else if err := r.writeConfigMap(ctx); err != nil {
			return err
		}
		r.cutWatcher()
	}
	if r.begin(); !m.down || f.answersReads {
		return nil
	}
	s := selection{kind: kind{configMap, "configmaps", true, false}, selector: generate.Label}
	at := generate.Pick(r.src, forms)
	r.note("list %s%s without %s", at.prefix, s, m.name)
	if err := r.compareList(ctx, s, at, []*member{m}); err != nil {
		return err
	}
	for _, path := range []string{
		at.prefix + s.path(map[string][]string{"strict": {"true"}}, true),
		at.prefix + s.kind.object(namespaces[0], "absent@"+m.name),
		at.prefix + s.kind.object(namespaces[0], "absent"), // the cluster may have it
	} {
		r.note("GET %s without %s", path, m.name)
		a, err := r.gateway.do(ctx, request{method: http.MethodGet, path: path})
		if err != nil {
			return err
		}
		if err := wantUnavailable("GET "+path, a); err != nil {
			return err
		}
	}
	return nil
}

// writeConfigMap creates a pair of config maps in a cluster that answers, by a name that is unique to it.
func (r *runner) writeConfigMap(ctx context.Context) error {
	i := slices.IndexFunc(r.kinds, func(k kind) bool { return k.gvk == configMap })
	p := r.newPair(r.kinds[i])
	if p == nil {
		return nil
	}
	o := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": r.src.Metadata()}
	o["data"] = map[string]any{"a": r.src.Text()}
	w := &write{pair: p, at: byName, form: generate.Pick(r.src, forms), method: "POST", isCreate: true}
	w.contentType = typeJSON
	w.body = func(name, namespace string) ([]byte, error) { return encode(o, name, namespace, typeJSON) }
	a, err := r.mirror(ctx, w)
	if err == nil && a.isSuccess() {
		r.pairs = append(r.pairs, p)
	}
	return err
}
