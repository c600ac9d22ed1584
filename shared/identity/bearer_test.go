package identity

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func encoded(token string) string {
	return BearerProtocol + base64.RawURLEncoding.EncodeToString([]byte(token))
}

func TestBearerToken(t *testing.T) {
	ws := func(protocols ...string) http.Header {
		return http.Header{"Upgrade": {"websocket"}, "Sec-Websocket-Protocol": protocols}
	}
	with := func(h http.Header, auth ...string) http.Header {
		h["Authorization"] = auth
		return h
	}
	tests := map[string]struct {
		header  http.Header
		want    string
		wantErr string
	}{
		"none":        {http.Header{}, "", ""},
		"bearer":      {with(http.Header{}, "Bearer abc"), "abc", ""},
		"in any case": {with(http.Header{}, "bEARER  abc "), "abc", ""},
		"basic":       {with(http.Header{}, "Basic abc"), "", ""},
		"nothing":     {with(http.Header{}, ""), "", ""},
		"empty":       {with(http.Header{}, "Bearer "), "", "the bearer token is empty"},
		"two words": {with(http.Header{}, "Bearer a b"), "",
			"the bearer token has invalid characters"},
		"not ASCII": {with(http.Header{}, "Bearer ä"), "", "the bearer token has invalid characters"},
		"too long": {with(http.Header{}, "Bearer "+strings.Repeat("a", maxToken+1)), "",
			"the bearer token has more than 16384 bytes"},
		"two headers":               {with(http.Header{}, "Bearer a", "Bearer b"), "", "several Authorization headers"},
		"subprotocol":               {ws("v5.channel.k8s.io, " + encoded("abc")), "abc", ""},
		"subprotocol on a line":     {ws(encoded("abc"), "v5.channel.k8s.io"), "abc", ""},
		"header before subprotocol": {with(ws("x", encoded("abc")), "Bearer header"), "header", ""},
		"basic and subprotocol":     {with(ws("x", encoded("abc")), "Basic x"), "abc", ""},
		"no token":                  {ws("v5.channel.k8s.io"), "", ""},
		"alone": {ws(encoded("abc")), "",
			"a websocket subprotocol is missing beside the one with the bearer token"},
		"twice": {ws("x", encoded("abc"), encoded("abc")), "",
			"several websocket subprotocols with a bearer token"},
		"not encoded": {ws("x", BearerProtocol+"a!"), "",
			"the websocket subprotocol's bearer token is not base64url without padding"},
		"padded": {ws("x", BearerProtocol+"YQ=="), "",
			"the websocket subprotocol's bearer token is not base64url without padding"},
		"empty in subprotocol":   {ws("x", BearerProtocol), "", "the bearer token is empty"},
		"a line break":           {ws("x", encoded("a\r\nb")), "", "the bearer token has invalid characters"},
		"subprotocol without ws": {http.Header{"Sec-Websocket-Protocol": {"x, " + encoded("abc")}}, "", ""},
		"subprotocol with SPDY": {
			http.Header{"Upgrade": {"SPDY/3.1"}, "Sec-Websocket-Protocol": {"x, " + encoded("abc")}}, "", ""},
		"subprotocol of other cases": {ws("x", strings.ToUpper(BearerProtocol)+"YQ"), "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := BearerToken(&http.Request{Header: tt.header})
			if tt.wantErr != "" {
				if err == nil || err.Error() != tt.wantErr {
					t.Errorf("got %v, want %s", err, tt.wantErr)
				}
			} else if got != tt.want || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

type known string

func (k known) Method() string { return "token " + string(k) }

func (k known) AuthenticateToken(_ context.Context, token string) (*User, error) {
	switch {
	case token == string(k):
		return &User{Name: token}, nil
	case strings.HasPrefix(token, string(k)):
		return nil, refusal(nil, "%s is invalid", k)
	}
	return nil, nil
}

func TestBearer(t *testing.T) {
	b := Bearer{known("one"), known("two")}
	authenticate := func(auth string) (*User, error) {
		r := httptest.NewRequest("GET", "/", nil)
		if auth != "" {
			r.Header.Set("Authorization", auth)
		}
		return Chain{b}.Authenticate(r)
	}
	if u, err := authenticate("Bearer two"); err != nil || u.Name != "two" {
		t.Errorf("%+v, %v", u, err)
	}
	for auth, want := range map[string]string{
		"":             "the call has no credential; the gateway accepts: bearer token (token one, token two)",
		"Bearer one!":  "one is invalid",
		"Bearer three": "the gateway does not accept this bearer token: bearer token (token one, token two)",
		"Bearer":       "the bearer token cannot be read: the bearer token is empty",
	} {
		u, err := authenticate(auth)
		wantRefused(t, u, err, want)
	}
}

func TestForeignName(t *testing.T) {
	for name, want := range map[string]bool{
		"ann": true, "ann@example.com": true, "https://x#1": true, "Ünal": true, "a b": true, "system": true,
		"systems:x": true,
		"":          false, "system:masters": false, "system:": false, "a\nb": false, "a\x00": false, "a\x7f": false,
		" a": false, "a ": false, "\xff": false,
		"a\u202eb": false, "a\u200bb": false, strings.Repeat("a", maxName+1): false,
	} {
		if err := foreignName(name); (err == nil) != want {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func FuzzBearerToken(f *testing.F) {
	f.Add("Bearer abc", "x, "+encoded("abc"), "websocket")
	f.Add("", encoded("abc"), "websocket")
	f.Fuzz(func(t *testing.T, auth, protocols, upgrade string) {
		h := http.Header{"Upgrade": {upgrade}, "Sec-Websocket-Protocol": {protocols}}
		if auth != "" {
			h["Authorization"] = []string{auth}
		}
		token, err := BearerToken(&http.Request{Header: h})
		if err == nil && token != "" && checkToken(token) != nil {
			t.Errorf("%q", token)
		}
	})
}
