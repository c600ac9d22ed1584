// Package naming addresses an object in one cluster of the fleet as name@cluster.
//
//   - Body rewrites a request's body for a member, with the member's own names and resourceVersions.
//   - Answer rewrites a member's object for the client, with the names that the client uses.
//   - A Reference is a field that Body and Answer rewrite, such as one that names an object.
//
// Numbers keep their text. A body that needs no rewrite stays byte for byte.
package naming

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/scan"
	"github.com/clusterpass/clusterpass/shared/route"
)

// PlacementAnnotation names the cluster in which to create an object.
const PlacementAnnotation = "clusterpass.io/cluster"

// ClusterLabel is the key by which a label selector selects clusters. Objects need no such label.
const ClusterLabel = PlacementAnnotation

// Split separates name@cluster at the last @. ok is false unless known reports a cluster of that name.
func Split(name string, known func(cluster string) bool) (base, cluster string, ok bool) {
	i := strings.LastIndexByte(name, '@')
	if i <= 0 || !known(name[i+1:]) {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}

// isQualified accepts every valid cluster name, because a cluster of that name may be registered later.
func isQualified(own string) bool {
	_, _, ok := Split(own, func(cluster string) bool { return route.ValidClusterName(cluster) == nil })
	return ok
}

var errUnreadable = fmt.Errorf("the body is neither an object nor a patch of one")

// decode decodes one JSON value. Numbers become json.Number, which keeps their text.
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
