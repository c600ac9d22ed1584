// Package leak finds secrets in what programs printed.
//
// A test notes each secret in a Book when the secret is made, since it may be gone from its store by the time that anybody looks. The
// Book knows it by all the forms that a careless program gives it: as it is, in base64 (also in the middle of
// something larger, and once more around it), in hexadecimal, quoted, as Go prints bytes; and of a private key the numbers
// that are secret, since certificates hold the others.
package leak

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"k8s.io/client-go/tools/clientcmd"
)

// shortest is how many bytes a secret must have: what is shorter occurs by chance, and so are no secrets of tests that should be
// found.
const shortest = 12

// Book keeps secrets in mind. The zero value is empty. It is safe for concurrent use.
type Book struct {
	mu    sync.Mutex
	forms map[string][]form // by their first bytes, as many as shortest
}

// form is one way in which a secret may show, and where that comes from.
type form struct{ text, from string }

// Secret notes a token or a password. Of a JWT its signature is the secret.
func (b *Book) Secret(from, secret string) {
	if parts := strings.Split(secret, "."); len(parts) == 3 && len(parts[2]) >= shortest {
		secret = parts[2]
	}
	b.note(from, spread(secret))
}

// Document notes the credentials that data holds, a kubeconfig or PEM, and returns how many there are.
func (b *Book) Document(from string, data []byte) int {
	n := b.keys(from, data)
	kc, err := clientcmd.Load(data)
	if err != nil {
		return n
	}
	for _, cluster := range kc.Clusters {
		if proxy, err := url.Parse(cluster.ProxyURL); err == nil && proxy.User != nil {
			n++
			password, _ := proxy.User.Password()
			b.Secret(from, password)
			b.Secret(from, strings.TrimPrefix(url.UserPassword("", password).String(), ":")) // as URLs have it
		}
	}
	for _, user := range kc.AuthInfos {
		n += b.keys(from, user.ClientKeyData)
		for _, secret := range []string{user.Token, user.Password} {
			if secret != "" {
				n++
				b.Secret(from, secret)
			}
		}
	}
	return n
}

// keys notes the private keys in PEM.
func (b *Book) keys(from string, data []byte) (n int) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			n++
			b.note(from, keyForms(block.Bytes))
		}
	}
	return n
}

func (b *Book) note(from string, texts []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.forms == nil {
		b.forms = map[string][]form{}
	}
	for _, text := range texts {
		if len(text) < shortest {
			continue
		}
		if known := b.forms[text[:shortest]]; !slices.ContainsFunc(known, func(f form) bool { return f.text == text }) {
			b.forms[text[:shortest]] = append(known, form{text, from})
		}
	}
}

// Empty reports whether nothing was noted, so that Find proves nothing.
func (b *Book) Empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.forms) == 0
}

// Find returns where the secrets come from that text shows, in order.
func (b *Book) Find(text string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := map[string]bool{}
	for i := range len(text) - shortest + 1 {
		for _, f := range b.forms[text[i:i+shortest]] {
			if strings.HasPrefix(text[i:], f.text) {
				found[f.from] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// spread gives the forms of s, and of s in base64: a kubeconfig has PEM in base64, and may itself be shown in any form.
func spread(s string) []string {
	if len(s) < shortest {
		return nil
	}
	forms := printed(s)
	for _, encoded := range base64Forms(s) {
		forms = append(append(forms, printed(encoded)...), base64Forms(encoded)...)
	}
	return forms
}

// printed gives the forms in which Go prints s.
func printed(s string) []string {
	quoted, inJSON := strconv.Quote(wholeRunes(s)), []byte{}
	if utf8.ValidString(s) {
		inJSON, _ = json.Marshal(s) // a string: cannot fail
		inJSON = inJSON[1 : len(inJSON)-1]
	}
	return []string{
		s, quoted[1 : len(quoted)-1], string(inJSON), url.QueryEscape(s), fmt.Sprintf("%x", s), fmt.Sprintf("%X", s),
		fmt.Sprintf("% x", s),
		strings.Trim(fmt.Sprintf("%d", []byte(s)), "[]"), strings.Trim(fmt.Sprintf("%#v", []byte(s)), "[]byte{}"),
	}
}

// wholeRunes is s without the bytes at its ends that may make a character together with what s stands in: quoted, those look
// otherwise there.
func wholeRunes(s string) string {
	for s != "" && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	for end := max(0, len(s)-utf8.UTFMax+1); end < len(s); end++ {
		if !utf8.FullRuneInString(s[end:]) {
			return s[:end]
		}
	}
	return s
}

// base64Forms are what is the same in the base64 of everything that s stands in.
func base64Forms(s string) (forms []string) {
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			text := enc.EncodeToString(append(make([]byte, before), s...))
			if (before+len(s))%3 != 0 {
				text = text[:len(text)-1] // of it, bits belong to what comes after s
			}
			forms = append(forms, text[(before*8+5)/6:]) // and of these to what comes before
		}
	}
	return forms
}
