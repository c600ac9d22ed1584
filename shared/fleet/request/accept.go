package request

import (
	"fmt"
	"mime"
	"strings"

	"github.com/clusterpass/clusterpass/shared/status"
)

// AcceptJSON returns the Accept header for members: the JSON forms that the client accepts, in the client's order.
func (r *Request) AcceptJSON() (string, error) {
	lines := r.Header["Accept"]
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
		return "", status.New(status.NotAcceptable, "", "the fleet responds with application/json, as objects, Table or "+
			"PartialObjectMetadata, because it adds the cluster to each object; the client accepts only %.200q",
			strings.Join(lines, ", "))
	}
	return strings.Join(out, ", "), nil
}
