package scan

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// Field is a field of an object.
type Field struct {
	Name    []byte // quoted and escaped, as in the text
	At, End int    // the value is text[At:End]
}

// Is reports whether the field has that name, with or without escapes.
func (f Field) Is(name string) bool {
	if bytes.IndexByte(f.Name, '\\') < 0 {
		return string(f.Name[1:len(f.Name)-1]) == name
	}
	own, err := jsontext.AppendUnquote(nil, f.Name)
	return err == nil && string(own) == name
}
