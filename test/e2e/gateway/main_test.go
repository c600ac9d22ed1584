// Package gateway_test tests REST requests to one cluster, the stores and the documented scripts.
package gateway_test

import (
	"testing"

	"github.com/clusterpass/clusterpass/test/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
