//go:build tools

// Package tools pins actionlint: go.mod names its version, go.sum the hashes of everything it is made of.
package tools

import _ "github.com/rhysd/actionlint/cmd/actionlint"
