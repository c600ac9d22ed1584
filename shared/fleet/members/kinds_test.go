package members

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clusterpass/clusterpass/shared/alloctest"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
)

func many(one string, bytes int) string {
	return strings.TrimSuffix(strings.Repeat(one+",", bytes/(len(one)+1)), ",")
}

// TestKindsBounded fails if a member could fill the memory by the kinds of an API version.
func TestKindsBounded(t *testing.T) {
	of := func(resources string) []byte {
		return []byte(`{"kind":"APIResourceList","resources":[` + resources + `]}`)
	}
	for _, one := range []string{"0", "{}", `{"name":"a"}`} {
		doc := of(many(one, 1<<20-100))
		if n := alloctest.Allocated(func() { _, _ = kindsOf(doc) }); n > 24<<20 {
			t.Errorf("%s: %d MiB", one, n>>20)
		}
	}
	const each = len("0123") + len("Thing") + kindOverhead
	for n, want := range map[int]bool{kindsSize / each: true, kindsSize/each + 1: false} {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{"name":"%04d","kind":"Thing","namespaced":true},{"name":"%04d/status",`+
				`"kind":"Thing"}`, i, i))
		}
		kinds, err := kindsOf(of(strings.Join(all, ",")))
		if (err == nil) != want || want && (len(kinds) != n || kinds["0007"] != (ResourceKind{"Thing", true})) {
			t.Errorf("%d kinds: %d, %v", n, len(kinds), err)
		}
	}
}

// TestKindsOfSlowMember fails if a member that answers in time were shown with old kinds. It also fails if a member
// that hangs were left out although its old kinds are known.
func TestKindsOfSlowMember(t *testing.T) {
	const grace = 10 * time.Second
	for name, tt := range map[string]struct {
		takes time.Duration // to read the kinds once more
		want  string
	}{
		"slow":  {grace/2 - time.Second, "New"},
		"hangs": {grace/2 + time.Second, "Old"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := Config{GracePeriod: grace, Deadline: time.Minute, Log: slog.New(slog.DiscardHandler)}
				pool, reads := NewPool(cfg), 0
				pool.kinds = newKinds(cfg, func(_ context.Context, key string) (map[string]ResourceKind, error) {
					if !strings.Contains(key, "/slow/") {
						return map[string]ResourceKind{"things": {Kind: "Thing"}}, nil
					}
					if reads++; reads == 1 {
						return map[string]ResourceKind{"things": {Kind: "Old"}}, nil
					}
					time.Sleep(tt.takes)
					return map[string]ResourceKind{"things": {Kind: "New"}}, nil
				})
				both := []Entry{member("preferred", 1).Entry, member("slow", 2).Entry}
				for _, want := range []string{"Old", tt.want} {
					reports, err := pool.Kinds(t.Context(), both, registry.Kind{APIVersion: "v1", Resource: "things"}, 1)
					if got := reports["slow"]; err != nil || got.Unavailable != nil || got.Kind != want {
						t.Errorf("%+v, %v, want the kind %q", got, err, want)
					}
					time.Sleep(kindsTTL)
				}
				synctest.Wait() // for the read that nothing waits for
			})
		})
	}
}
