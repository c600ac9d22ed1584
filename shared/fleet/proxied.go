package fleet

import (
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/naming"
)

// proxied parts the name before a proxy subresource, SCHEME:NAME:PORT or NAME:PORT. What is proxied has no colon in its name.
func proxied(said string) (before, name, after string) {
	switch parts := strings.SplitN(said, ":", 3); len(parts) {
	case 3:
		return parts[0] + ":", parts[1], ":" + parts[2]
	case 2:
		return "", parts[0], ":" + parts[1]
	}
	return "", said, ""
}

// object is the name of the object that the path leads to.
func (q *ask) object() string {
	if q.res.Subresource != "proxy" {
		return q.res.Name
	}
	_, name, _ := proxied(q.res.Name)
	return name
}

// split parts the path's name@cluster, also within the name before a proxy subresource.
func (q *ask) split() (base, cluster string, ok bool) {
	base, cluster, ok = naming.Split(q.res.Name, q.known)
	if ok || q.res.Subresource != "proxy" {
		return base, cluster, ok
	}
	before, name, after := proxied(q.res.Name)
	name, cluster, ok = naming.Split(name, q.known)
	return before + name + after, cluster, ok
}
