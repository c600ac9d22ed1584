package lambdahttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/shared/limits"
)

// Kind is the kind of front that sent an event.
type Kind string

// The kinds.
const (
	ALB  Kind = "alb"  // Application Load Balancer
	REST Kind = "rest" // API Gateway REST API, payload format 1.0
	HTTP Kind = "http" // API Gateway HTTP API or function URL, payload format 2.0
)

// Event has the front's information about a request. AWS wrote all of it, the client none. It is shared, so it must not
// be changed.
type Event struct {
	Kind Kind
	// SourceIP is the peer of the front, or the zero Addr if the event has none (health checks). For an ALB it is the last
	// entry of X-Forwarded-For. That is correct as long as the ALB appends to this header, which is its default.
	SourceIP netip.Addr
	// ClientCert is the certificate that API Gateway verified (mutual TLS), or nil. An ALB reports certificates in
	// X-Amzn-Mtls-* headers. It removes these from requests only if its listener has mutual TLS enabled.
	ClientCert     *ClientCert
	TargetGroupARN string // ALB
	APIID          string // REST, HTTP
	Stage          string // REST, HTTP
	RequestID      string // REST, HTTP: API Gateway's request ID
	// Deadline is the end of the invocation. Lambda ends the process then. It is zero if there is none.
	Deadline time.Time
}

// ClientCert is a client certificate that API Gateway verified.
type ClientCert struct {
	PEM          string `json:"clientCertPem"`
	SubjectDN    string `json:"subjectDN"`
	IssuerDN     string `json:"issuerDN"`
	SerialNumber string `json:"serialNumber"`
}

type eventKey struct{}

// EventFrom returns the event of a request's context, or false outside of a function.
func EventFrom(ctx context.Context) (*Event, bool) {
	ev, ok := ctx.Value(eventKey{}).(*Event)
	return ev, ok
}

// ErrEvent is wrapped by errors about payloads that no known front sends. They fail the invocation, because there is no
// HTTP client.
var ErrEvent = errors.New("not an event of an ALB, a REST API or an HTTP API")

// wire is the union of the three event formats.
type wire struct {
	Version                         string   `json:"version"`
	HTTPMethod                      string   `json:"httpMethod"`
	Path                            string   `json:"path"`
	RawPath                         string   `json:"rawPath"`
	RawQueryString                  string   `json:"rawQueryString"`
	Headers                         pairs    `json:"headers"`
	MultiValueHeaders               pairs    `json:"multiValueHeaders"`
	QueryStringParameters           pairs    `json:"queryStringParameters"`
	MultiValueQueryStringParameters pairs    `json:"multiValueQueryStringParameters"`
	Cookies                         []string `json:"cookies"`
	Body                            string   `json:"body"`
	IsBase64Encoded                 bool     `json:"isBase64Encoded"`
	RequestContext                  struct {
		ELB *struct {
			TargetGroupARN string `json:"targetGroupArn"`
		} `json:"elb"`
		HTTP *struct {
			Method   string `json:"method"`
			SourceIP string `json:"sourceIp"`
		} `json:"http"`
		Identity *struct {
			SourceIP   string      `json:"sourceIp"`
			ClientCert *ClientCert `json:"clientCert"`
		} `json:"identity"`
		Authentication *struct {
			ClientCert *ClientCert `json:"clientCert"`
		} `json:"authentication"`
		ConnectionID string `json:"connectionId"` // WebSocket APIs
		APIID        string `json:"apiId"`
		Stage        string `json:"stage"`
		RequestID    string `json:"requestId"`
		DomainName   string `json:"domainName"`
	} `json:"requestContext"`
}

func parse(payload []byte) (*wire, *Event, error) {
	var in wire
	if err := json.Unmarshal(payload, &in); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrEvent, err)
	}
	rc := &in.RequestContext
	ev := &Event{APIID: rc.APIID, Stage: rc.Stage, RequestID: rc.RequestID}
	switch {
	case rc.ELB != nil:
		ev.Kind, ev.TargetGroupARN = ALB, rc.ELB.TargetGroupARN
		ev.SourceIP = limits.LastForwarded(forwardedFor(in.headers()))
	case rc.HTTP != nil && strings.HasPrefix(in.Version, "2."):
		ev.Kind, ev.SourceIP = HTTP, limits.ParseAddress(rc.HTTP.SourceIP)
		in.HTTPMethod = rc.HTTP.Method
		if rc.Authentication != nil {
			ev.ClientCert = rc.Authentication.ClientCert
		}
	case rc.Identity != nil && in.HTTPMethod != "" && rc.ConnectionID == "":
		ev.Kind, ev.SourceIP = REST, limits.ParseAddress(rc.Identity.SourceIP)
		ev.ClientCert = rc.Identity.ClientCert
	default:
		return nil, nil, ErrEvent
	}
	if ev.ClientCert != nil && ev.ClientCert.PEM == "" {
		ev.ClientCert = nil
	}
	return &in, ev, nil
}

// headers returns the request's headers from the more complete map of the format.
func (in *wire) headers() pairs {
	if len(in.MultiValueHeaders) > 0 {
		return in.MultiValueHeaders
	}
	return in.Headers
}

func forwardedFor(headers pairs) []string {
	var lines []string
	for _, h := range headers {
		if strings.EqualFold(h.key, "X-Forwarded-For") {
			lines = append(lines, h.value)
		}
	}
	return lines
}

// pairs is a JSON object of strings, or of lists of strings, in the order of the event. A Go map would lose the order
// of query keys and of header names that differ only in case.
type pairs []pair

type pair struct{ key, value string }

// UnmarshalJSON implements json.Unmarshaler. null results in no pairs.
func (p *pairs) UnmarshalJSON(b []byte) error {
	*p = nil
	dec := json.NewDecoder(bytes.NewReader(b))
	t, err := dec.Token()
	if err != nil || t == nil {
		return err
	}
	if t != json.Delim('{') {
		return fmt.Errorf("want an object, got %v", t)
	}
	out := pairs{} // not nil, since an empty object is not null
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		key, _ := t.(string) // within an object, the next token is its key
		var v values
		if err := dec.Decode(&v); err != nil {
			return err
		}
		for _, s := range v {
			out = append(out, pair{key, s})
		}
	}
	*p = out
	return nil
}

type values []string

// UnmarshalJSON implements json.Unmarshaler.
func (v *values) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, (*[]string)(v))
	}
	var s *string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if *v = nil; s != nil {
		*v = values{*s}
	}
	return nil
}
