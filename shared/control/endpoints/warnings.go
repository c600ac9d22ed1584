package endpoints

import (
	"net/http"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/warning"
)

// miscellaneous is the warn-code of persistent warnings in RFC 7234.
const miscellaneous = 299

// maxWarnings bounds the bytes of all warnings in a response. Clients refuse responses with large headers.
const maxWarnings = 4096

// warnings adds the warnings of handlers to the header of a response.
type warnings struct {
	mu     sync.Mutex
	header http.Header
	size   int
	texts  map[string]bool
}

var _ warning.Recorder = (*warnings)(nil)

// AddWarning implements warning.Recorder. It omits repeated warnings, and those beyond maxWarnings.
func (r *warnings) AddWarning(agent, text string) {
	value, err := utilnet.NewWarningHeader(miscellaneous, agent, text)
	if err != nil { // the text is not one line of UTF-8
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.texts[text] || r.size+len(value) > maxWarnings {
		return
	}
	if r.texts == nil {
		r.texts = map[string]bool{}
	}
	r.texts[text] = true
	r.size += len(value)
	r.header.Add("Warning", value)
}
