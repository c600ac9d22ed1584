package members

import (
	"log/slog"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
)

func member(name string, id uint64) Target {
	c := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return Target{Entry: Entry{c, id}, Scope: registry.Scope{All: true}}
}

// TestPanicBecomesFailure fails if an unforeseen response of one member could end the process with all its streams.
func TestPanicBecomesFailure(t *testing.T) {
	p := NewPool(Config{Log: slog.New(slog.DiscardHandler)})
	answers := p.Each([]Target{member("a", 1), member("b", 2)}, func(_ int, tt Target) *Answer {
		if tt.Name == "b" {
			panic("never seen")
		}
		return &Answer{Target: tt}
	})
	good, bad, err := Split(answers)
	if err != nil || len(good) != 1 || len(bad) != 1 || bad[0].Cluster != "b" ||
		strings.Contains(bad[0].Message, "never seen") {
		t.Errorf("%v, %v, %v", good, bad, err)
	}
}
