// Package access_test drives what decides who a caller is and what the caller may do.
package access_test

import (
	"testing"

	"github.com/clusterpass/clusterpass/test/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
