package streams

import "math"

// items finds events that are consecutive CBOR data items (RFC 8742). After invalid CBOR it finds no more ends.
type items struct {
	open []uint64 // stack of open arrays, maps, tags and strings: their number of remaining items, or endless
	skip uint64   // remaining bytes of a string
	head int      // remaining bytes of the item's head
	kind byte     // major type of the current item
	arg  uint64   // argument of the current item, as far as received
	some bool     // an event has started
	lost bool     // the response is invalid
}

// Major types (RFC 8949, section 3.1).
const (
	cborBytes, cborText, cborArray, cborMap, cborTag, cborSimple = 2, 3, 4, 5, 6, 7
)

const (
	endless = math.MaxUint64 // until a break
	// Kubernetes' own decoder has the same limit.
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

func (c *items) isBetweenEvents() bool { return !c.some && !c.lost }

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
		c.push(endless)
	default:
		c.lost = true
	}
}

func (c *items) begin() {
	switch {
	case c.kind == cborTag:
		c.push(1)
	case c.arg == 0 || c.kind < cborBytes || c.kind == cborSimple:
		c.done()
	case c.kind == cborBytes, c.kind == cborText:
		c.skip = c.arg
	case c.arg > math.MaxInt64: // impossible in practice, and too close to endless
		c.lost = true
	case c.kind == cborArray:
		c.push(c.arg)
	case c.kind == cborMap:
		c.push(2 * c.arg)
	}
}

func (c *items) push(n uint64) {
	if len(c.open) == maxOpen {
		c.lost = true
		return
	}
	c.open = append(c.open, n)
}

// done ends an item, and the items that end with it.
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
