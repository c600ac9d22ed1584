package access

import (
	"testing"

	"github.com/clusterpass/clusterpass/shared/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
