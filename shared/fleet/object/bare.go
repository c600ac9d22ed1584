package object

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
	"github.com/clusterpass/clusterpass/shared/status"
)

// BareWrites selects the writes for which naming a cluster is optional, if the fleet has several; "" means BareWhole.
type BareWrites string

// The values of BareWrites. docs/reference/fleet.md has the writes that each permits.
const (
	BareWhole BareWrites = "whole"
	BareNone  BareWrites = "none"
	BareAll   BareWrites = "all"
)

// Decode implements envconfig.Decoder.
func (b *BareWrites) Decode(v string) error {
	switch *b = BareWrites(v); *b {
	case BareWhole, BareNone, BareAll:
		return nil
	}
	return fmt.Errorf("is none of %s, %s and %s", BareWhole, BareNone, BareAll)
}

// readsNoManifest has the commands of kubectl that write objects and have no flag for a manifest.
var readsNoManifest = map[string]bool{
	"kubectl cordon": true, "kubectl drain": true, "kubectl taint": true, "kubectl uncordon": true,
}

// certificates begins the commands of kubectl that read an object by the name in a manifest, and send all of it back.
const certificates = "kubectl certificate "

// permits reports whether a write may name no cluster. command is the value of Kubectl-Command.
func (b BareWrites) permits(method, contentType, command string, body *naming.Body) bool {
	partial := method == http.MethodDelete || method == http.MethodPatch
	switch {
	case b == BareAll, partial && body.HasPrecondition():
		return true
	case b == BareNone:
		return false
	case readsNoManifest[command]:
		return true
	case method == http.MethodDelete:
		return false
	case method == http.MethodPatch:
		return request.ShowsManifest(command) || isApply(contentType)
	}
	return !strings.HasPrefix(command, certificates)
}

func isApply(contentType string) bool {
	return strings.HasPrefix(contentType, "application/apply-patch")
}

func (h *Handler) refusesWrite(placement string, body *naming.Body) bool {
	req := h.Request
	return placement == "" && h.Selector.IsBare() &&
		!h.BareWrites.permits(req.Method, h.contentType(), req.Command(), body)
}

// hidesPlacement reports whether a patch may omit the manifest's placement, because the stored object has the same.
func (h *Handler) hidesPlacement() bool {
	req := h.Request
	return req.Method == http.MethodPatch && h.BareWrites != BareAll &&
		request.ShowsManifest(req.Command()) && h.Selector.IsBare()
}

func storedPlacement(object []byte) string {
	return scan.Text(scan.Lookup(object, "metadata", "annotations", naming.PlacementAnnotation))
}

// refusesEdit reports whether the later patch of kubectl edit would be refused. The user gets the error before editing.
func (h *Handler) refusesEdit() bool {
	return h.Request.Command() == request.CommandEdit && h.Selector.IsBare() &&
		!h.BareWrites.permits(http.MethodPatch, "", request.CommandEdit, &naming.Body{})
}

var bareNouns = map[string]string{
	http.MethodDelete: "deletion", http.MethodGet: "edit", http.MethodPatch: "patch", http.MethodPut: "update",
}

func refuseBare(req *request.Request, cluster string) error {
	res := req.Resource
	forms := res.Name + "@" + cluster
	if res.Namespace != "" && res.Resource != "namespaces" {
		forms += " or the namespace " + res.Namespace + "@" + cluster
	}
	return status.New(status.NoPlacement, "", "the %s of %s %q by its name alone is refused: the request does not "+
		"name cluster %q, the only one with such an object; use the name %s, or send the request to /clusters/%s",
		cmp.Or(bareNouns[req.Method], "write"), res.Resource, res.Name, cluster, forms, cluster)
}
