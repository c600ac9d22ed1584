package fleet

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
	"github.com/clusterpass/clusterpass/shared/status"
)

// BareWrites selects the writes that may address an object by its name alone, while the fleet has several clusters.
// kubectl often sends the name in a manifest without the annotation that names the cluster. The zero value is
// BareWhole.
type BareWrites string

const (
	// BareWhole permits writes whose body shows the manifest's annotations: updates, and what kubectl apply sends.
	BareWhole BareWrites = "whole"
	// BareNone permits no write.
	BareNone BareWrites = "none"
	// BareAll permits every write.
	BareAll BareWrites = "all"
)

// Decode implements envconfig.Decoder.
func (b *BareWrites) Decode(v string) error {
	switch *b = BareWrites(v); *b {
	case BareWhole, BareNone, BareAll:
		return nil
	}
	return fmt.Errorf("is none of %s, %s and %s", BareWhole, BareNone, BareAll)
}

// showsManifest are the commands of kubectl whose patches have the annotations of the manifest, unless the object that
// kubectl read has the same (see hidesPlacement).
var showsManifest = map[string]bool{"kubectl apply": true, "kubectl diff": true}

// readsNoManifest are the commands of kubectl that write objects and have no flag for a manifest.
var readsNoManifest = map[string]bool{
	"kubectl cordon": true, "kubectl drain": true, "kubectl taint": true, "kubectl uncordon": true,
}

// certificates begins the commands of kubectl that read an object by the name in a manifest, and send all of it back.
const certificates = "kubectl certificate "

// permits reports whether a write by a bare name may be done, whose body names no cluster. command is the value of
// commandHeader.
func (b BareWrites) permits(method, contentType, command string, body *naming.Body) bool {
	partial := method == http.MethodDelete || method == http.MethodPatch
	switch {
	case b == BareAll, partial && body.Exact():
		return true
	case b == BareNone:
		return false
	case readsNoManifest[command]:
		return true
	case method == http.MethodDelete:
		return false
	case method == http.MethodPatch:
		return showsManifest[command] || isApply(contentType)
	}
	return !strings.HasPrefix(command, certificates)
}

// isApply reports whether a body is that of a server-side apply.
func isApply(contentType string) bool {
	return strings.HasPrefix(contentType, "application/apply-patch")
}

// bare reports whether the request names no cluster, while there are several.
func (q *ask) bare() bool {
	return q.named == "" && q.within == "" && len(q.only) != 1 && len(q.inv.Clusters) > 1
}

// guards reports whether a write is refused because it names no cluster. placement is the cluster of its annotations.
func (q *ask) guards(placement string, body *naming.Body) bool {
	contentType := q.r.Header.Get("Content-Type")
	return placement == "" && q.bare() && !q.f.cfg.BareWrites.permits(q.r.Method, contentType, q.command(), body)
}

// hidesPlacement reports whether the request is a patch of a manifest, which has the manifest's placement only where
// the stored object has another.
func (q *ask) hidesPlacement() bool {
	return q.r.Method == http.MethodPatch && showsManifest[q.command()] && q.bare() && q.f.cfg.BareWrites != BareAll
}

// storedPlacement returns the placement of an object that a member returned.
func storedPlacement(object []byte) string {
	return scan.Text(scan.Lookup(object, "metadata", "annotations", naming.PlacementAnnotation))
}

// guardsEdit reports whether the patch would be refused that kubectl edit sends after this read. A refusal now comes
// before the user has edited.
func (q *ask) guardsEdit() bool {
	return q.command() == edits && q.bare() &&
		!q.f.cfg.BareWrites.permits(http.MethodPatch, "", edits, &naming.Body{})
}

// bareVerbs are the nouns for methods in the errors of refuseBare.
var bareVerbs = map[string]string{
	http.MethodDelete: "deletion", http.MethodGet: "edit", http.MethodPatch: "patch", http.MethodPut: "update",
}

// refuseBare is the error of a write by a bare name, whose object is in a cluster.
func (q *ask) refuseBare(cluster string) error {
	forms := q.res.Name + "@" + cluster
	if q.res.Namespace != "" && q.res.Resource != "namespaces" {
		forms += " or the namespace " + q.res.Namespace + "@" + cluster
	}
	return status.New(status.NoPlacement, "", "the %s of %s %q by its name alone is refused: the request does not show "+
		"that cluster %q is meant, the only one with such an object; use the name %s, or ask the cluster at /clusters/%s",
		cmp.Or(bareVerbs[q.r.Method], "write"), q.res.Resource, q.res.Name, cluster, forms, cluster)
}

// refusePrune returns an error for the lists of kubectl apply --prune that name no cluster. kubectl deletes the listed
// objects that its manifests do not have, in every cluster. It lists for no other reason.
func (q *ask) refusePrune() error {
	if q.command() != applies || !q.bare() || q.only != nil || !q.labels.Empty() {
		return nil
	}
	return status.New(status.NoPlacement, "", "%s to prune cannot be listed: kubectl apply --prune would delete those "+
		"of every cluster; use -n NAMESPACE@CLUSTER and --prune-allowlist with kinds that have namespaces, "+
		"select %s=CLUSTER, or ask the cluster at /clusters/NAME",
		q.res.Resource, naming.ClusterLabel)
}
