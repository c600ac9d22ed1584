package secrets

import (
	"crypto/subtle"
	"fmt"
	"log/slog"
)

// Value is the content of a secret. Packages fmt, log/slog and encoding/json print "[hidden]", as do encoders that use
// encoding.TextMarshaler.
//
// The bytes are in a closure, which hides them from printers that use reflection. Such printers follow pointers, and do
// not call the Format method of an unexported field.
type Value struct{ reveal func() []byte }

// NewValue returns a Value of b. The caller must not change b afterwards.
func NewValue(b []byte) Value { return Value{func() []byte { return b }} }

// Reveal returns the bytes. The caller must not change them.
func (v Value) Reveal() []byte {
	if v.reveal == nil {
		return nil
	}
	return v.reveal()
}

// Equal compares in constant time for values of equal length.
func (v Value) Equal(w Value) bool { return subtle.ConstantTimeCompare(v.Reveal(), w.Reveal()) == 1 }

const hidden = "[hidden]"

// Format implements fmt.Formatter for every verb.
func (Value) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hidden)) }

// LogValue implements slog.LogValuer.
func (Value) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalJSON implements json.Marshaler.
func (Value) MarshalJSON() ([]byte, error) { return []byte(`"` + hidden + `"`), nil }

// MarshalText implements encoding.TextMarshaler.
func (Value) MarshalText() ([]byte, error) { return []byte(hidden), nil }
