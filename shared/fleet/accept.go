package fleet

import (
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/clusterpass/clusterpass/shared/status"
)

// acceptJSON returns the forms of JSON that a client takes, as an Accept header for members, in the client's order: objects, Tables and
// PartialObjectMetadata. A client without Accept takes everything.
func acceptJSON(h http.Header) (string, error) {
	lines := h["Accept"]
	if len(lines) == 0 {
		return "application/json", nil
	}
	var out []string
	for clause := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		media, params, err := mime.ParseMediaType(strings.TrimSpace(clause))
		if err != nil || params["q"] == "0" {
			continue
		}
		switch media {
		case "application/json", "application/*", "*/*":
		default:
			continue
		}
		form := "application/json"
		if as := params["as"]; as != "" {
			form += fmt.Sprintf(";as=%s;g=%s;v=%s", as, params["g"], params["v"])
		}
		out = append(out, form)
	}
	if len(out) == 0 {
		return "", status.New(status.NotAcceptable, "", "the fleet answers in application/json, as objects, Table or PartialObjectMetadata, since it writes into each object where it is; "+
			"the client accepts only %.200q", strings.Join(lines, ", "))
	}
	return strings.Join(out, ", "), nil
}
