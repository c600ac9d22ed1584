//go:build !lambda.norpc

package awsclient

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
)

// Load reads the SDK's standard environment. With the build tag lambda.norpc it reads only the variables of AWS Lambda,
// which saves a tenth of a function's size.
func Load(ctx context.Context) (aws.Config, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return cfg, fmt.Errorf("load the AWS configuration: %w", err)
	}
	return cfg, nil
}
