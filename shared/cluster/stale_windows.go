package cluster

// isStale returns false: a socket of Windows cannot be read without blocking. Only the command line runs there, and it
// ends before a connection can become stale.
func (c *conn) isStale() bool { return false }
