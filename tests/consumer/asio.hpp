// Two shared libraries of somebody else's, both of which use nowait/asio.hpp.
#pragma once

#include <string>

#include <asio/any_io_executor.hpp>

__attribute__((visibility("default"))) std::string first_library(asio::any_io_executor executor);
__attribute__((visibility("default"))) std::string second_library(asio::any_io_executor executor);
