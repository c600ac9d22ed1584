// Package private_test drives clusters that are reached through their agents' tunnels only.
package private_test

import (
	"testing"

	"github.com/clusterpass/clusterpass/test/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
