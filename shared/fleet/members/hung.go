package members

import (
	"errors"
	"time"

	"github.com/clusterpass/clusterpass/shared/identity"
)

// A frozen cluster delays the discovery of a client by the deadline. RecentlyHung spares the client's next request the
// same delay. Callers choose the requests at which clusters hang, so no caller shares the entries of another.
const (
	hungMax = 10_000
	hungFor = 10 * time.Second
)

// DigestOfUser returns a hash of the identity that members receive.
func DigestOfUser(u *identity.User) Digest {
	return DigestOf(u.Name, u.UID, u.Groups, u.Extra, u.Impersonator)
}

// RememberHung remembers for RecentlyHung those failures that are due to the deadline of a read.
func (c *Client) RememberHung(failures []*Failure) {
	for _, e := range failures {
		var late *deadlineError
		if errors.As(e, &late) && !late.isWrite && c.RecentlyHung(e.Cluster) == nil {
			c.hung.Add(c.hungKey(e.Cluster), e, c.cfg.Now().Add(hungFor))
		}
	}
}

// RecentlyHung returns the failure of a cluster that this caller remembered within the last 10 s, or nil.
func (c *Client) RecentlyHung(cluster string) *Failure {
	e, _ := c.hung.Get(c.hungKey(cluster))
	return e
}

func (c *Client) hungKey(cluster string) Digest {
	return DigestOf(DigestOfUser(c.caller.User), cluster)
}
