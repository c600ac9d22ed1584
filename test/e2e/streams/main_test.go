// Package streams_test tests the streams of one cluster: exec, attach, logs -f, port-forward and watches.
package streams_test

import (
	"testing"

	"github.com/clusterpass/clusterpass/test/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
