// Package fleet_test drives the fleet: many clusters answered as one.
package fleet_test

import (
	"testing"

	"github.com/clusterpass/clusterpass/test/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
