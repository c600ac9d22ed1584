package secrets

import (
	"crypto/subtle"
	"fmt"
	"log/slog"
)

// Value is the content of a secret. It hides itself from fmt, log/slog, encoding/json, encoding.TextMarshaler
// and reflection; Reveal gives the bytes.
//
// The bytes live in a closure: fmt calls no Format method of an unexported field, and dumpers that walk
// memory by reflection follow pointers, but none of them looks into a function.
type Value struct{ reveal func() []byte }

// NewValue wraps b, which the caller must not change afterwards.
func NewValue(b []byte) Value { return Value{func() []byte { return b }} }

// Reveal returns the bytes, which the caller must not change.
func (v Value) Reveal() []byte {
	if v.reveal == nil {
		return nil
	}
	return v.reveal()
}

// Equal compares in a time that depends on the lengths only.
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
