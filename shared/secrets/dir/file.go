package dir

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/clusterpass/clusterpass/shared/secrets"
)

// header starts the first line of a file with labels. A JSON object follows. YAML and PEM ignore the line, so the file
// stays a valid kubeconfig or key.
const header = "# clusterpass labels: "

var errHeader = errors.New(
	`the first line: want a JSON object of strings after "` + header + `", such as {"env":"prod"}, and a line break`)

func encode(v secrets.Value, labels map[string]string) ([]byte, error) {
	b := v.Reveal()
	if len(labels) == 0 && !bytes.HasPrefix(b, []byte(header)) {
		return b, nil
	}
	if labels == nil {
		labels = map[string]string{}
	}
	j, err := json.Marshal(labels)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(header)+len(j)+1+len(b))
	out = append(out, header...)
	out = append(out, j...)
	out = append(out, '\n')
	return append(out, b...), nil
}

// decode splits the content of a file into value and labels. Its errors never quote the content.
func decode(b []byte) (secrets.Value, map[string]string, error) {
	rest, ok := bytes.CutPrefix(b, []byte(header))
	if !ok {
		return secrets.NewValue(b), nil, nil
	}
	line, value, ok := bytes.Cut(rest, []byte("\n"))
	if !ok {
		return secrets.Value{}, nil, errHeader
	}
	var labels map[string]string
	if err := json.Unmarshal(line, &labels); err != nil {
		return secrets.Value{}, nil, errHeader
	}
	if err := secrets.ValidLabels(labels); err != nil {
		return secrets.Value{}, nil, err
	}
	if len(labels) == 0 {
		labels = nil
	}
	return secrets.NewValue(value), labels, nil
}
