package possession_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/passes/possession"
)

// A request in a log or a proxy contains a proof, which its reader could repeat.
func TestProofsAreAcceptedOnce(t *testing.T) {
	var p possession.Proofs
	now := time.Now()
	if err := p.Use("prod", "a", now); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		cluster, id string
		after       time.Duration
		isGood      bool
	}{
		"again":              {"prod", "a", 0, false},
		"again, at its end":  {"prod", "a", 2 * possession.ProofAge, false},
		"another proof":      {"prod", "b", 0, true},
		"another cluster":    {"dev", "a", 0, true},
		"after it has ended": {"prod", "a", 3 * possession.ProofAge, true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := p.Use(tt.cluster, tt.id, now.Add(tt.after)); (err == nil) != tt.isGood {
				t.Errorf("error %v", err)
			}
		})
	}
}

// One cluster's agents must not use up memory, nor displace the proofs of others.
func TestProofsOfOneClusterAreBounded(t *testing.T) {
	var p possession.Proofs
	now := time.Now()
	if err := p.Use("other", "a", now); err != nil {
		t.Fatal(err)
	}
	used := 0
	for p.Use("prod", fmt.Sprint(used), now) == nil {
		if used++; used > 100_000 {
			t.Fatal("there is no bound")
		}
	}
	if p.Use("other", "a", now) == nil || p.Use("prod", "0", now) == nil {
		t.Error("a used proof was forgotten")
	}
	if err := p.Use("prod", "later", now.Add(time.Hour)); err != nil {
		t.Errorf("after their end: %v", err)
	}
}
