//go:build !lambda.norpc

package awsclient

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
)

// Load reads region, endpoint and credentials from the SDK's standard environment. Programs with the build tag
// lambda.norpc use only the variables of AWS Lambda. The SDK's code for SSO, profiles and browsers would be a tenth of
// a function's size.
func Load(ctx context.Context) (aws.Config, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return cfg, fmt.Errorf("load the AWS configuration: %w", err)
	}
	return cfg, nil
}
