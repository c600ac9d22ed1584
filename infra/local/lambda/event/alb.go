package event

import (
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// The limits of an Application Load Balancer whose target is a function, in bytes.
const (
	ALBRequestBody  = 1 << 20  // 413 beyond it
	ALBResponseJSON = 1 << 20  // 502 beyond it
	ALBLine         = 16 << 10 // request line (414) or a single header (400)
	ALBHeaders      = 64 << 10 // all headers (400)
)

// ALB is the target group of an Application Load Balancer, with one function.
type ALB struct {
	TargetGroupARN string
	// SingleValue means a target group without lambda.multi_value_headers.enabled. Of several equal headers or query keys,
	// only the last is forwarded, in both directions.
	SingleValue bool
}

type albEvent struct {
	RequestContext struct {
		ELB struct {
			TargetGroupARN string `json:"targetGroupArn"`
		} `json:"elb"`
	} `json:"requestContext"`
	HTTPMethod                      string              `json:"httpMethod"`
	Path                            string              `json:"path"`
	QueryStringParameters           map[string]string   `json:"queryStringParameters,omitempty"`
	MultiValueQueryStringParameters map[string][]string `json:"multiValueQueryStringParameters,omitempty"`
	Headers                         map[string]string   `json:"headers,omitempty"`
	MultiValueHeaders               map[string][]string `json:"multiValueHeaders,omitempty"`
	Body                            string              `json:"body"`
	IsBase64Encoded                 bool                `json:"isBase64Encoded"`
}

// Event returns the event for r, whose body it reads. Its error is a *Refusal.
func (a ALB) Event(r *http.Request) ([]byte, error) {
	if r.Header.Get("Upgrade") != "" {
		return nil, refuse(http.StatusBadRequest, "a function cannot upgrade a connection")
	}
	if err := headerLimits(r); err != nil {
		return nil, err
	}
	path, query, err := target(r)
	if err != nil {
		return nil, err
	}
	body, err := readBody(r, ALBRequestBody)
	if err != nil {
		return nil, err
	}
	h := forwarded(r)
	if len(body) > 0 {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	ev := albEvent{HTTPMethod: r.Method, Path: path}
	ev.RequestContext.ELB.TargetGroupARN = a.TargetGroupARN
	ev.Body, ev.IsBase64Encoded = encode(body, albText(h))
	if a.SingleValue {
		ev.QueryStringParameters, ev.Headers = make(map[string]string), make(map[string]string)
		for _, p := range params(query) {
			ev.QueryStringParameters[p.key] = p.value
		}
		for k, v := range h {
			ev.Headers[strings.ToLower(k)] = v[len(v)-1]
		}
		return marshal(ev)
	}
	ev.MultiValueQueryStringParameters, ev.MultiValueHeaders = make(map[string][]string), make(map[string][]string)
	for _, p := range params(query) {
		ev.MultiValueQueryStringParameters[p.key] = append(ev.MultiValueQueryStringParameters[p.key], p.value)
	}
	for k, v := range h {
		ev.MultiValueHeaders[strings.ToLower(k)] = v
	}
	return marshal(ev)
}

func albText(h http.Header) bool {
	if h.Get("Content-Encoding") != "" {
		return false
	}
	t, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return strings.HasPrefix(t, "text/") || t == "application/json" || t == "application/javascript" ||
		t == "application/xml"
}

func headerLimits(r *http.Request) error {
	line := len(r.Method) + len(r.RequestURI) + len("  HTTP/1.1\r\n")
	if line > ALBLine {
		return refuse(http.StatusRequestURITooLong, "the request line is too long")
	}
	all := line + len("Host: \r\n\r\n") + len(r.Host)
	for k, vs := range r.Header {
		for _, v := range vs {
			n := len(k) + len(v) + len(": \r\n")
			if n > ALBLine {
				return refuse(http.StatusBadRequest, "header "+k+" is too long")
			}
			all += n
		}
	}
	if all > ALBHeaders {
		return refuse(http.StatusBadRequest, "the headers are too long")
	}
	return nil
}

// Answer writes a function's response. It writes nothing and returns a *Refusal if the ALB would reject it.
func (a ALB) Answer(w http.ResponseWriter, r *http.Request, payload []byte) error {
	if len(payload) > ALBResponseJSON {
		return refuse(http.StatusBadGateway, fmt.Sprintf("the answer has %d bytes, an ALB allows %d", len(payload),
			ALBResponseJSON))
	}
	p, err := decodeReply(payload)
	if err != nil {
		return refuse(http.StatusBadGateway, err.Error())
	}
	p.cookies = nil
	if a.SingleValue { // the other field is not read
		p.multiValueHeaders = nil
	} else {
		p.headers = nil
	}
	p.write(w, r)
	return nil
}

// Refuse writes a response of the ALB itself.
func (ALB) Refuse(w http.ResponseWriter, code int) {
	text := fmt.Sprintf("%d %s", code, http.StatusText(code))
	body := "<html>\r\n<head><title>" + text + "</title></head>\r\n<body>\r\n<center><h1>" + text +
		"</h1></center>\r\n</body>\r\n</html>\r\n"
	h := w.Header()
	h.Set("Server", "awselb/2.0")
	h.Set("Content-Type", "text/html")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write([]byte(body)) // the client may be gone
}
