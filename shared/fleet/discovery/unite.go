package discovery

import (
	"encoding/json"
	"errors"

	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

func uniteSchemas(a, b []byte) ([]byte, error) {
	return unite(a, b, map[string]int{"paths": 1, "components": 2})
}

// maxNames limits the names in one object of a member's document, because each needs some hundred bytes when decoded.
// 2,000 CustomResourceDefinitions have some 12,000. A united document has at most twice as many.
const maxNames = 50_000

var errManyNames = errors.New("it has too many names in one place")

// unite adds to a JSON document the names that only another has. parts maps each part to its number of levels of names.
func unite(a, b []byte, parts map[string]int) ([]byte, error) {
	var s scan.Scanner
	if !s.Whole(a) || !s.Whole(b) {
		return nil, scan.ErrSyntax
	}
	into, err := fieldsOf(a, 2*maxNames)
	if err != nil {
		return nil, err
	}
	from, err := fieldsOf(b, maxNames)
	if err != nil {
		return nil, err
	}
	if into == nil || from == nil {
		return nil, errors.New("it is null")
	}
	for name, depth := range parts {
		if from[name] == nil {
			continue
		}
		both, err := uniteNames(into[name], from[name], depth)
		if err != nil {
			return nil, err
		}
		into[name] = both
	}
	return json.Marshal(into)
}

func uniteNames(a, b json.RawMessage, depth int) (json.RawMessage, error) {
	switch {
	case depth == 0 && a == nil:
		return b, nil
	case depth == 0:
		return a, nil
	}
	y, err := fieldsOf(b, maxNames)
	if err != nil {
		return nil, err
	}
	var x map[string]json.RawMessage
	if a != nil {
		if x, err = fieldsOf(a, 2*maxNames); err != nil {
			return nil, err
		}
	}
	if x == nil {
		x = make(map[string]json.RawMessage, len(y))
	}
	for name, v := range y {
		both, err := uniteNames(x[name], v, depth-1)
		if err != nil {
			return nil, err
		}
		x[name] = both
	}
	if len(x) > 2*maxNames {
		return nil, errManyNames
	}
	return json.Marshal(x)
}

// fieldsOf returns the values of a well-formed object by their names, as parts of its text; nil for null.
func fieldsOf(object []byte, limit int) (map[string]json.RawMessage, error) {
	at := scan.Space(object, 0)
	switch object[at] {
	case 'n':
		return nil, nil
	case '{':
	default:
		return nil, errors.New("it is no object")
	}
	var s scan.Scanner
	out := map[string]json.RawMessage{}
	for f := range s.Fields(object, at) {
		if len(out) == limit {
			return nil, errManyNames
		}
		var name string
		if err := json.Unmarshal(f.Name, &name); err != nil {
			return nil, err
		}
		out[name] = object[f.At:f.End]
	}
	return out, nil
}
