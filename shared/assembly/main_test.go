package assembly

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/clusterpass/clusterpass/shared/leaktest"
)

func TestMain(m *testing.M) {
	// The goroutine of lumberjack does not end: see audit.File.Open.
	leaktest.Main(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}
