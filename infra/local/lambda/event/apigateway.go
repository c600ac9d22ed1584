package event

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

const gatewayBody = 10 << 20

// REST is an API Gateway REST API with one resource {proxy+} and BinaryMediaTypes */*.
type REST struct {
	APIID  string
	Stage  string // not part of the paths of requests
	Domain string // the API's, for instance a1b2c3d4e5.execute-api.eu-central-1.amazonaws.com
}

// Event returns the event for r, whose body it reads. Its error is a *Refusal.
func (g REST) Event(r *http.Request) ([]byte, error) {
	path, query, err := target(r)
	if err != nil {
		return nil, err
	}
	body, err := readBody(r, gatewayBody)
	if err != nil {
		return nil, err
	}
	single, multi := make(map[string]string), make(map[string][]string)
	for _, p := range params(query) {
		k, err1 := url.QueryUnescape(p.key)
		v, err2 := url.QueryUnescape(p.value)
		if err1 != nil || err2 != nil {
			return nil, refuse(http.StatusBadRequest, "the query has an invalid escape")
		}
		single[k], multi[k] = v, append(multi[k], v)
	}
	headers, multiHeaders := make(map[string]string), make(map[string][]string)
	h := forwarded(r)
	for k, v := range h {
		headers[k], multiHeaders[k] = v[len(v)-1], v
	}
	ev := map[string]any{
		"resource": "/{proxy+}", "path": path, "httpMethod": r.Method, "headers": headers, "multiValueHeaders": multiHeaders,
		"queryStringParameters": single, "multiValueQueryStringParameters": multi,
		"pathParameters": map[string]string{"proxy": strings.TrimPrefix(path, "/")}, "stageVariables": nil,
		"requestContext": map[string]any{
			"apiId": g.APIID, "stage": g.Stage, "domainName": g.Domain, "httpMethod": r.Method, "path": "/" + g.Stage + path,
			"protocol": "HTTP/1.1", "requestId": TraceID(), "resourcePath": "/{proxy+}",
			"identity": map[string]any{"sourceIp": peer(r), "userAgent": r.UserAgent()},
		},
		"body": nil, "isBase64Encoded": len(body) > 0,
	}
	if len(body) > 0 {
		ev["body"], _ = encode(body, false)
	}
	return marshal(ev)
}

// Answer writes a function's response. It writes nothing and returns a *Refusal if API Gateway would reject it.
func (REST) Answer(w http.ResponseWriter, r *http.Request, payload []byte) error {
	p, err := decodeReply(payload)
	if err != nil {
		return refuse(http.StatusBadGateway, err.Error())
	}
	p.cookies = nil
	p.write(w, r)
	return nil
}

// HTTP is an API Gateway HTTP API with the route $default.
type HTTP struct {
	APIID  string
	Stage  string // "" is $default
	Domain string
}

// Event returns the event for r, whose body it reads. Its error is a *Refusal.
func (g HTTP) Event(r *http.Request) ([]byte, error) {
	path, query, err := target(r)
	if err != nil {
		return nil, err
	}
	// An HTTP API decodes the path twice, and cuts it at a resulting "?".
	raw, err := url.PathUnescape(path)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "the path has an invalid escape")
	}
	if again, err := url.PathUnescape(raw); err == nil {
		raw = again
	} else {
		return nil, refuse(http.StatusBadRequest, "the path has a lone percent sign")
	}
	raw, _, _ = strings.Cut(raw, "?")
	body, err := readBody(r, gatewayBody)
	if err != nil {
		return nil, err
	}
	stage := g.Stage
	if stage == "" {
		stage = "$default"
	} else {
		raw = "/" + stage + raw
	}
	h := forwarded(r)
	if len(body) > 0 {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	var cookies []string
	for _, line := range h["Cookie"] {
		for c := range strings.SplitSeq(line, ";") {
			if c = strings.TrimSpace(c); c != "" {
				cookies = append(cookies, c)
			}
		}
	}
	h.Del("Cookie")
	headers := make(map[string]string)
	for k, v := range h {
		headers[strings.ToLower(k)] = strings.Join(v, ",")
	}
	ev := map[string]any{
		"version": "2.0", "routeKey": "$default", "rawPath": raw, "rawQueryString": query, "headers": headers,
		"requestContext": map[string]any{
			"apiId": g.APIID, "stage": stage, "domainName": g.Domain, "requestId": TraceID(), "routeKey": "$default",
			"http": map[string]any{
				"method": r.Method, "path": raw, "protocol": "HTTP/1.1", "sourceIp": peer(r), "userAgent": r.UserAgent(),
			},
		},
		"isBase64Encoded": false,
	}
	if len(cookies) > 0 {
		ev["cookies"] = cookies
	}
	if len(body) > 0 {
		ev["body"], ev["isBase64Encoded"] = encode(body, httpText(h))
	}
	return marshal(ev)
}

func httpText(h http.Header) bool {
	t := h.Get("Content-Type")
	return h.Get("Content-Encoding") == "" && (strings.HasPrefix(t, "text/") || strings.Contains(t, "json") ||
		strings.Contains(t, "xml"))
}

// Answer writes a function's response, or returns a *Refusal. A response without statusCode is the body of a 200.
func (HTTP) Answer(w http.ResponseWriter, r *http.Request, payload []byte) error {
	var doc map[string]json.RawMessage
	if json.Unmarshal(payload, &doc) == nil && doc["statusCode"] == nil {
		payload, _ = json.Marshal(map[string]any{ // the value contains strings only
			"statusCode": 200, "headers": map[string]string{"content-type": "application/json"}, "body": string(payload),
		})
	}
	p, err := decodeReply(payload)
	if err != nil {
		return refuse(http.StatusInternalServerError, err.Error())
	}
	p.multiValueHeaders = nil
	p.write(w, r)
	return nil
}

// Refuse writes a response of API Gateway itself.
func (REST) Refuse(w http.ResponseWriter, code int) { refuseJSON(w, code) }

// Refuse writes a response of API Gateway itself.
func (HTTP) Refuse(w http.ResponseWriter, code int) { refuseJSON(w, code) }

func refuseJSON(w http.ResponseWriter, code int) {
	message := http.StatusText(code)
	if code >= 500 {
		message = "Internal server error"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"message":%q}`, message) // the client may be gone
}

func peer(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
