package cache

import (
	"slices"
	"sync"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

var epoch = time.Unix(1_000_000, 0)

// An expired value, such as an identity that a provider has revoked, must not be used.
func TestExpiringEndsEntries(t *testing.T) {
	for name, tt := range map[string]struct {
		ttl, after time.Duration // a ttl of 0 means that the entry does not expire
		want       bool
	}{
		"before its expiry":           {time.Minute, time.Minute - 1, true},
		"at its expiry":               {time.Minute, time.Minute, false},
		"without expiry":              {0, 1000 * time.Hour, true},
		"expired when added":          {-1, 0, false},
		"when the clock was set back": {time.Minute, -time.Second, false},
		"set back, without expiry":    {0, -time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			clock := testingclock.NewFakeClock(epoch)
			c := NewExpiring[string, int](10, clock.Now)
			var expires time.Time
			if tt.ttl != 0 {
				expires = clock.Now().Add(tt.ttl)
			}
			c.Add("k", 1, expires)
			clock.Step(tt.after)
			if v, ok := c.Get("k"); ok != tt.want || ok != (v == 1) {
				t.Errorf("%d, %v", v, ok)
			}
			if n := c.Len(); (n == 1) != tt.want {
				t.Errorf("%d entries are left", n)
			}
		})
	}
}

// TestExpiringIgnoresTheMonotonicClock fails if a function that was frozen for an hour used what it knew before.
func TestExpiringIgnoresTheMonotonicClock(t *testing.T) {
	now := time.Now()
	c := NewExpiring[string, int](10, func() time.Time { return now })
	c.Add("k", 1, now.Add(time.Minute))
	now = now.Round(0).Add(time.Hour) // a wall-clock time; the monotonic clock stood still
	if v, ok := c.Get("k"); ok {
		t.Errorf("%d is used an hour later", v)
	}
}

func TestExpiringPanicsWithoutEntries(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a cache of no entries was made")
		}
	}()
	NewExpiring[string, int](0, nil)
}

func TestExpiringConcurrently(t *testing.T) {
	c := NewExpiring[int, int](4, nil).LimitBytes(10, func(v int) int { return v })
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 1000 {
				c.Add(i%7, i%5, time.Now().Add(time.Minute))
				c.Get(i % 6)
				c.Remove(i % 11)
			}
		})
	}
	all.Wait()
	if n := c.Len(); n > 4 {
		t.Errorf("%d entries", n)
	}
}

// model does what Expiring documents, slowly. The entries stand in the order of their use.
type model struct {
	now                  time.Time
	maxEntries, maxBytes int
	entries              []modelEntry
}

type modelEntry struct {
	key, size      byte
	added, expires time.Time
}

func (m *model) remove(key byte) (removed modelEntry, ok bool) {
	i := slices.IndexFunc(m.entries, func(e modelEntry) bool { return e.key == key })
	if i < 0 {
		return modelEntry{}, false
	}
	removed = m.entries[i]
	m.entries = slices.Delete(m.entries, i, i+1)
	return removed, true
}

func (m *model) get(key byte) (byte, bool) {
	e, ok := m.remove(key)
	if !ok || m.now.Before(e.added) || !e.expires.IsZero() && !m.now.Before(e.expires) {
		return 0, false
	}
	m.entries = append(m.entries, e)
	return e.size, true
}

func (m *model) add(key, size byte, expires time.Time) {
	m.remove(key)
	if m.maxBytes > 0 && int(size) > m.maxBytes {
		return
	}
	m.entries = append(m.entries, modelEntry{key, size, m.now, expires})
	for len(m.entries) > m.maxEntries || m.maxBytes > 0 && m.bytes() > m.maxBytes {
		m.entries = m.entries[1:]
	}
}

func (m *model) bytes() (sum int) {
	for _, e := range m.entries {
		sum += int(e.size)
	}
	return sum
}

// A difference is a value that is served too long or lost too early, or a cache that outgrows its bounds.
func FuzzExpiring(f *testing.F) {
	f.Add(uint8(3), uint8(20), []byte{0, 1, 9, 5, 0, 2, 9, 5, 1, 1, 0, 0, 0, 3, 9, 5, 1, 2, 0, 0, 3, 0, 9, 0, 1, 1, 0, 0})
	f.Add(uint8(2), uint8(0), []byte{0, 1, 1, 0, 0, 2, 1, 0, 0, 3, 1, 0, 2, 2, 0, 0, 1, 3, 0, 0})
	f.Add(uint8(9), uint8(5), []byte{0, 1, 5, 9, 0, 2, 6, 9, 0, 1, 1, 9, 3, 0, 0x80, 0, 1, 1, 0, 0})
	f.Fuzz(func(t *testing.T, maxEntries, maxBytes uint8, ops []byte) {
		clock := testingclock.NewFakeClock(epoch)
		c := NewExpiring[byte, byte](int(maxEntries%8)+1, clock.Now)
		c.LimitBytes(int(maxBytes%32), func(v byte) int { return int(v) })
		m := &model{now: epoch, maxEntries: int(maxEntries%8) + 1, maxBytes: int(maxBytes % 32)}
		for ; len(ops) >= 4; ops = ops[4:] {
			key, size := ops[1]%16, ops[2]%40
			switch ops[0] % 4 {
			case 0:
				var expires time.Time
				if ops[3] > 0 {
					expires = m.now.Add(time.Duration(ops[3]-1) * time.Second)
				}
				c.Add(key, size, expires)
				m.add(key, size, expires)
			case 1:
				got, ok := c.Get(key)
				if want, wantOK := m.get(key); got != want || ok != wantOK {
					t.Fatalf("key %d: %d, %v; want %d, %v", key, got, ok, want, wantOK)
				}
			case 2:
				c.Remove(key)
				m.remove(key)
			default:
				clock.Step(time.Duration(int8(ops[2])) * time.Second) // may be back
				m.now = clock.Now()
			}
			if c.Len() != len(m.entries) || c.maxBytes > 0 && c.bytes != m.bytes() {
				t.Fatalf("%d entries of %d bytes; want %d of %d", c.Len(), c.bytes, len(m.entries), m.bytes())
			}
		}
	})
}
