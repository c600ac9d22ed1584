package leak

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	header    = "eyJhbGciOiJSUzI1NiIsImtpZCI6InRoZS1rZXktb2YtdGhlLWlzc3VlciJ9"
	payload   = "eyJpc3MiOiJodHRwczovL2t1YmVybmV0ZXMuZGVmYXVsdC5zdmMiLCJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6YTpiIn0"
	signature = "q8-0Zc_bM3yR2nLwVtX1uKpE7sJ4hG9dF6aS5oI0jQkN-TbYrWvCxUzPmOeAlHgi"
	password  = "p4ss/w0rd+of&a user"

	proxyPassword = "an0ther/w0rd+of&a proxy"
)

func everyKind(t *testing.T) map[string]crypto.Signer {
	t.Helper()
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]crypto.Signer{"EC": ec, "Ed25519": ed, "RSA": r}
}

func pkcs8(t *testing.T, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func certificate(t *testing.T, key crypto.Signer) []byte {
	t.Helper()
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "somebody"}, NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// noise are strings around the output, with every length that matters for base64.
var noise = []string{"", "a", "bc", `{"level":"INFO","msg":"`}

var shows = map[string]func(b []byte) string{
	"as they are":     func(b []byte) string { return string(b) },
	"%q":              func(b []byte) string { return fmt.Sprintf("%q", b) },
	"%v":              func(b []byte) string { return fmt.Sprintf("%v", b) },
	"%+v of a struct": func(b []byte) string { return fmt.Sprintf("%+v", struct{ Name, Data any }{"x", b}) },
	"%#v":             func(b []byte) string { return fmt.Sprintf("%#v", b) },
	"%x":              func(b []byte) string { return fmt.Sprintf("%x", b) },
	"%X":              func(b []byte) string { return fmt.Sprintf("%X", b) },
	"JSON":            func(b []byte) string { j, _ := json.Marshal(struct{ A []byte }{b}); return string(j) },
	"JSON of text":    func(b []byte) string { j, _ := json.Marshal(struct{ A string }{string(b)}); return string(j) },
	"base64 in base64": func(b []byte) string {
		return base64.StdEncoding.EncodeToString([]byte("x: " + base64.StdEncoding.EncodeToString(b)))
	},
	"slog": func(b []byte) string {
		var out bytes.Buffer
		slog.New(slog.NewTextHandler(&out, nil)).Info("m", "data", b, "text", string(b))
		return out.String()
	},
}

func TestPlantedLeaks(t *testing.T) {
	kubeconfig := func(user clientcmdapi.AuthInfo) []byte {
		data, err := clientcmd.Write(clientcmdapi.Config{AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": &user}})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	proxy := url.URL{Scheme: "http", User: url.UserPassword("u", proxyPassword), Host: "proxy:3128"}
	proxied, err := clientcmd.Write(
		clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{"c": {ProxyURL: proxy.String()}}})
	if err != nil {
		t.Fatal(err)
	}
	documents := map[string][]byte{
		"token":    kubeconfig(clientcmdapi.AuthInfo{Token: header + "." + payload + "." + signature}),
		"password": kubeconfig(clientcmdapi.AuthInfo{Username: "u", Password: password}),
		"proxy":    proxied,
	}
	planted := map[string][]byte{
		"signature": []byte(signature), "password itself": []byte(password),
		"proxy's password": []byte(proxyPassword), "proxy's URL": []byte(proxy.String()),
	}
	from := map[string]string{
		"signature": "token", "password itself": "password", "proxy's password": "proxy", "proxy's URL": "proxy",
	}
	for kind, key := range everyKind(t) {
		der := pkcs8(t, key)
		text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		documents[kind] = kubeconfig(clientcmdapi.AuthInfo{ClientKeyData: text})
		planted[kind+" in DER"], planted[kind+" in PEM"] = der, text
		planted[kind+", one line of PEM"] = []byte(lines[1+(len(lines)-2)/2])
		planted[kind+", the body on one line"] = []byte(strings.Join(lines[1:len(lines)-1], ""))
		for _, what := range []string{" in DER", " in PEM", ", one line of PEM", ", the body on one line"} {
			from[kind+what] = kind
		}
	}
	var book Book
	if !book.Empty() {
		t.Error("an empty book is not empty")
	}
	for name, data := range documents {
		planted[name], from[name] = data, name
		if n := book.Document(name, data); n != 1 {
			t.Errorf("%s: %d secrets, want one", name, n)
		}
	}
	if book.Empty() {
		t.Error("the book is empty")
	}
	for what, data := range planted {
		for how, show := range shows {
			for _, around := range noise {
				if how == "base64 in base64" && documents[what] != nil ||
					how == "JSON of text" && strings.HasSuffix(what, " in DER") {
					continue // encoded too often, since documents contain base64; or text that loses invalid bytes
				}
				// The preceding bytes shift the encoding.
				printed := around + show(append([]byte(around), data...)) + around
				if got := book.Find(printed); !slices.Contains(got, from[what]) {
					t.Errorf("%s, %s, is not found in: %.200s", what, how, printed)
				}
			}
		}
	}
}

// TestRunesAcrossTheEnds: a secret must be found even if its first and last bytes form characters with
// their neighbours.
func TestRunesAcrossTheEnds(t *testing.T) {
	const middle = "\x80\xff a secret of some length \xf9\xc3"
	for _, secret := range []string{
		middle, middle + "\xda", middle + "\xe4\xbd", middle + "\xf0\x9f\x98", "\xa1" + middle, "\xbd\xa0" + middle,
	} {
		for _, before := range []string{"", "\x04 ", "\xda", "\xe4", "\xe4\xbd", "\xf0\x9f"} {
			for _, after := range []string{"", "D", "\xa1D", "\xa0", "\x80"} {
				var book Book
				book.Secret("it", secret)
				if printed := fmt.Sprintf("%q", before+secret+after); len(book.Find(printed)) == 0 {
					t.Errorf("%q is not found in %s", secret, printed)
				}
			}
		}
	}
}

func TestNoFalseAlarm(t *testing.T) {
	var book Book
	book.Secret("token", header+"."+payload+"."+signature)
	book.Secret("short", "any")
	book.Secret("none", "")
	public := []string{header + "." + payload, header + "." + payload + ".[hidden]", "anything, any other, any", ""}
	for kind, key := range everyKind(t) {
		book.Document(kind, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8(t, key)}))
		cert := certificate(t, key)
		public = append(public, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})))
		for _, show := range shows {
			public = append(public, show(cert), show(append([]byte("a"), cert...)), show(append([]byte("bc"), cert...)))
		}
		other := everyKind(t)[kind]
		public = append(public, base64.StdEncoding.EncodeToString(pkcs8(t, other)), string(pkcs8(t, other)))
	}
	for _, text := range public {
		if got := book.Find(text); len(got) != 0 {
			t.Errorf("%v in %.300q", got, text)
		}
	}
	if n := book.Document("nothing", []byte("kind: Config")); n != 0 {
		t.Errorf("%d secrets in a kubeconfig that has none", n)
	}
}
