package leak

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"math/big"
)

const (
	lineChars = 64 // characters in a line of PEM
	lineBytes = lineChars / 4 * 3
	// enough is the number of secret bytes that make a line secret.
	enough = 8
)

// keyForms returns the forms of a private key in DER: its secret numbers, and the lines of PEM that contain parts of
// one.
func keyForms(der []byte) (forms []string) {
	numbers := secretNumbers(der)
	for _, number := range numbers {
		forms = append(forms, spread(string(number))...)
		forms = append(forms, new(big.Int).SetBytes(number).String())
	}
	body := base64.StdEncoding.EncodeToString(der)
	for at := 0; at*lineChars < len(body); at++ {
		line := body[at*lineChars : min(len(body), (at+1)*lineChars)]
		if holdsSome(der, numbers, at*lineBytes, (at+1)*lineBytes) {
			forms = append(forms, spread(line)...)
		}
	}
	return forms
}

func holdsSome(der []byte, numbers [][]byte, from, to int) bool {
	for _, number := range numbers {
		at := bytes.Index(der, number)
		if at >= 0 && min(to, at+len(number))-max(from, at) >= enough {
			return true
		}
	}
	return false
}

// secretNumbers returns the numbers of a private key that are not in its public key. For an unknown kind of key it
// returns the whole key.
func secretNumbers(der []byte) [][]byte {
	var key any
	var err error
	for _, parse := range []func([]byte) (any, error){
		x509.ParsePKCS8PrivateKey,
		func(b []byte) (any, error) { return x509.ParseECPrivateKey(b) },
		func(b []byte) (any, error) { return x509.ParsePKCS1PrivateKey(b) },
	} {
		if key, err = parse(der); err == nil {
			break
		}
	}
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		if d, err := k.Bytes(); err == nil {
			return [][]byte{d}
		}
	case ed25519.PrivateKey:
		return [][]byte{k.Seed()}
	case *rsa.PrivateKey:
		numbers := [][]byte{k.D.Bytes()}
		for _, prime := range k.Primes {
			numbers = append(numbers, prime.Bytes())
		}
		return numbers
	}
	return [][]byte{der}
}
