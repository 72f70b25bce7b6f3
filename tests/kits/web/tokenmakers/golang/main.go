// Reads keys from stdin, and prints tokens of these keys by name.
package main

import (
	"crypto"
	"encoding/json"
	"log"
	"os"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

type asked struct {
	Secret   string
	Keys     map[string]string
	Right    map[string][]string
	Subject  string
	Audience string
}

type claims struct {
	Right map[string][]string `json:"oplog"`
	jwt.RegisteredClaims
}

func main() {
	var given asked
	check(json.NewDecoder(os.Stdin).Decode(&given))
	now := time.Now()
	content := claims{given.Right, jwt.RegisteredClaims{
		Subject:   given.Subject,
		Audience:  jwt.ClaimStrings{given.Audience},
		IssuedAt:  jwt.NewNumericDate(now),
		NotBefore: jwt.NewNumericDate(now),
		ExpiresAt: jwt.NewNumericDate(now.Add(10 * time.Minute)),
	}}
	tokens := map[string]string{}
	sign := func(method jwt.SigningMethod, key any) {
		token, err := jwt.NewWithClaims(method, content).SignedString(key)
		check(err)
		tokens[method.Alg()] = token
	}
	sign(jwt.SigningMethodHS256, []byte(given.Secret))
	for name, pem := range given.Keys {
		sign(jwt.GetSigningMethod(name), private(name, []byte(pem)))
	}
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{"tokens": tokens}))
}

func private(name string, pem []byte) crypto.PrivateKey {
	var key crypto.PrivateKey
	var err error
	switch name {
	case "RS256":
		key, err = jwt.ParseRSAPrivateKeyFromPEM(pem)
	case "ES256":
		key, err = jwt.ParseECPrivateKeyFromPEM(pem)
	case "EdDSA":
		key, err = jwt.ParseEdPrivateKeyFromPEM(pem)
	}
	check(err)
	return key
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
