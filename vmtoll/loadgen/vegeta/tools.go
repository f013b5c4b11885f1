//go:build tools

// Package tools pins vegeta: go.mod names its version, go.sum the hashes of everything it is made of.
package tools

import _ "github.com/tsenart/vegeta/v12"
