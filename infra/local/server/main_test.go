package server

import (
	"os"
	"testing"

	"github.com/clusterpass/clusterpass/infra/local/plugin"
)

func TestMain(m *testing.M) {
	plugin.Main() // gateways run credential plugins below this program
	os.Exit(m.Run())
}
