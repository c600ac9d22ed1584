// Package private_test tests clusters that the gateway reaches only through their agents' tunnels.
package private_test

import (
	"testing"

	"github.com/clusterpass/clusterpass/test/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
