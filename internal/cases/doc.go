// Package cases runs faults that people reported of systems like this one through the whole of Cairn: embedded NATS,
// every service, tool services on the SDK or on the bare wire, and clients over gRPC and HTTP. Each test is named after
// the case's number; what one package can show alone is tested there under the same number.
package cases
