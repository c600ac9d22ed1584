// Package naming is how one of several objects of one name is addressed: name@cluster. It writes bodies for the member, with its own
// names and versions, and answers for the client, with the names that it used.
//
// Numbers and all that is not said here stay as they are; a body without anything to change stays byte for byte.
package naming

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/scan"
	"github.com/clusterpass/clusterpass/shared/route"
)

// PlacementAnnotation says in which cluster an object is to be made.
const PlacementAnnotation = "clusterpass.io/cluster"

// ClusterLabel is what a label selector compares to name clusters. No object has it.
const ClusterLabel = PlacementAnnotation

// Split parts name@cluster. Names of some kinds may hold an @ of their own: known says what is a cluster.
func Split(name string, known func(cluster string) bool) (base, cluster string, ok bool) {
	i := strings.LastIndexByte(name, '@')
	if i <= 0 || !known(name[i+1:]) {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}

// reads reports whether an object's own name reads as name@cluster, were there a cluster of that name, which there may be tomorrow.
func reads(own string) bool {
	_, _, ok := Split(own, func(cluster string) bool { return route.ValidClusterName(cluster) == nil })
	return ok
}

// errUnreadable is for what is no object, or patch of one.
var errUnreadable = fmt.Errorf("the body is neither an object nor a patch of one")

// decode returns the one value that data is, with numbers as they are written.
func decode(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if scan.Space(data, int(dec.InputOffset())) < len(data) {
		return nil, errUnreadable
	}
	return v, nil
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
