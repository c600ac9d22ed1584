// Package streams_test drives what streams: exec, attach, logs -f, port-forward and watches of one cluster.
package streams_test

import (
	"testing"

	"github.com/clusterpass/clusterpass/test/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
