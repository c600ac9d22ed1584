package gateway_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

func TestMain(m *testing.M) {
	waittest.RunParallel()
	// lumberjack starts this goroutine with the first write to an audit file. See audit.File.Open.
	leaktest.Main(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

type fixture struct {
	*gatewaytest.Gateway
	t testing.TB
}

func newGateway(t testing.TB, opts gatewaytest.Options) *fixture {
	t.Helper()
	return &fixture{gatewaytest.New(t, opts), t}
}
