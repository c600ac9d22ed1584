package fleet

import (
	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
)

// singleMember reports whether a request covers one cluster alone. Versions in its answer are that cluster's own then.
//
// Registries, the caller's rights and the request itself decide which clusters are covered. A cluster that is down is
// among them, so that the form of versions does not change when it returns.
func singleMember(targets []members.Target) bool { return len(targets) == 1 }

// written returns a version as it stands in an answer: the member's own for a single one, else the composite.
func written(v cursor.Version, single bool) string {
	if single {
		for _, own := range v {
			return own
		}
	}
	return v.String()
}
