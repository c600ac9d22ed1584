package streams

import "math"

// items are events that are CBOR data items, one after the other (RFC 8742), as kube-apiserver writes CBOR. Where what comes is no
// CBOR, no end is found any more.
type items struct {
	open []uint64 // of each array, map, tag and string in pieces that is open: how many items are to come, or endless
	skip uint64   // bytes of a string that are to come
	head int      // bytes of the item's head that are to come
	kind byte     // of the item whose head comes
	arg  uint64   // of it, as far as it has come
	some bool     // whether the event has begun
	lost bool
}

// The kinds of items that are more than a head (RFC 8949, section 3.1).
const (
	cborBytes, cborText, cborArray, cborMap, cborTag, cborSimple = 2, 3, 4, 5, 6, 7
)

const (
	endless = math.MaxUint64 // until a break
	// maxOpen bounds the memory of one watch; Kubernetes' own decoder takes as many levels.
	maxOpen = 10000
)

func (c *items) next(p []byte) int {
	end := -1
	for at := 0; at < len(p) && !c.lost; {
		if c.skip > 0 {
			n := min(c.skip, uint64(len(p)-at))
			c.skip -= n
			at += int(n)
			if c.skip == 0 {
				c.done()
			}
		} else {
			c.step(p[at])
			at++
		}
		if !c.some && end < 0 && !c.lost {
			end = at
		}
	}
	return end
}

func (c *items) between() bool { return !c.some && !c.lost }

// step takes one byte of a head.
func (c *items) step(b byte) {
	c.some = true
	if c.head > 0 {
		c.arg = c.arg<<8 | uint64(b)
		if c.head--; c.head == 0 {
			c.begin()
		}
		return
	}
	c.kind, c.arg = b>>5, uint64(b&0x1f)
	switch info := b & 0x1f; {
	case info < 24:
		c.begin()
	case info < 28:
		c.head, c.arg = 1<<(info-24), 0
	case info == 31 && c.kind == cborSimple: // a break
		if n := len(c.open); n == 0 || c.open[n-1] != endless {
			c.lost = true
			return
		}
		c.open = c.open[:len(c.open)-1]
		c.done()
	case info == 31 && c.kind >= cborBytes && c.kind <= cborMap:
		c.hold(endless)
	default:
		c.lost = true
	}
}

// begin takes what a head says.
func (c *items) begin() {
	switch {
	case c.kind == cborTag:
		c.hold(1)
	case c.arg == 0 || c.kind < cborBytes || c.kind == cborSimple:
		c.done()
	case c.kind == cborBytes, c.kind == cborText:
		c.skip = c.arg
	case c.arg > math.MaxInt64: // none is so long, and it would not be told from endless
		c.lost = true
	case c.kind == cborArray:
		c.hold(c.arg)
	case c.kind == cborMap:
		c.hold(2 * c.arg)
	}
}

// hold waits for the end of n items.
func (c *items) hold(n uint64) {
	if len(c.open) == maxOpen {
		c.lost = true
		return
	}
	c.open = append(c.open, n)
}

// done ends an item, and those that it was the last of.
func (c *items) done() {
	for n := len(c.open); n > 0; n = len(c.open) {
		if c.open[n-1] == endless {
			return
		}
		if c.open[n-1]--; c.open[n-1] > 0 {
			return
		}
		c.open = c.open[:n-1]
	}
	c.some = false
}
