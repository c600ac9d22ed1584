// Package api_test tests the gateway's own API with kubectl.
package api_test

import (
	"testing"

	"github.com/clusterpass/clusterpass/test/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
