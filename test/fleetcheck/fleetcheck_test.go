package main

import (
	"cmp"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// TestFleetAnswersAsItsClusters: the fleet must not change, lose or invent an object or event while clusters fail. A
// fixed seed makes the test repeatable. CLUSTERPASS_SOAK sets another duration and a random seed.
func TestFleetAnswersAsItsClusters(t *testing.T) {
	duration, err := time.ParseDuration(cmp.Or(os.Getenv("CLUSTERPASS_SOAK"), "1m"))
	if err != nil {
		t.Fatalf("read CLUSTERPASS_SOAK: %v; set it to a duration such as 2h", err)
	}
	seed := uint64(21)
	if os.Getenv("CLUSTERPASS_SOAK") != "" {
		seed = rand.Uint64()
	}
	if text := os.Getenv("CLUSTERPASS_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("read CLUSTERPASS_SEED: %v; set it to the seed that a failed run printed", err)
		}
	}
	o := options{seed: seed, duration: duration, clusters: 3, out: t.Output()}
	if err := check(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}
