// Package access_test tests authentication and authorization: logins, passes, certificates, grants and registrations.
package access_test

import (
	"testing"

	"github.com/clusterpass/clusterpass/test/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
